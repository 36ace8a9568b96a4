"""The commands of ``rmq``, a file for each noun. They import the store inside their functions: help is quick."""
