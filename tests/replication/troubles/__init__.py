"""What goes wrong around a pair of stores: restarts at night, full disks, silent strangers, slow links."""
