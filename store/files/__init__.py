"""What a store lies on: mapped files, rows of files, byte locks, and the file system under them."""
