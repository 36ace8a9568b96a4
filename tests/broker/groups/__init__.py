"""Remote members of groups: who they are, which queues they have, and how they share a group with local workers."""
