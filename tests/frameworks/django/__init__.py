"""The shop in Django: in this process under the kit, and in real servers and workers."""
