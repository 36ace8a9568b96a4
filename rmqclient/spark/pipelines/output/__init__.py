"""Output: the files that pipelines write, published so that any reader of a directory sees each row once."""
