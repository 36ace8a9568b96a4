"""What an append needs around the kernel: files, pages, buffers, and the repair of one that was interrupted."""
