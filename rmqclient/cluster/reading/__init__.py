"""Reading: requests without being a member of a group: topics, messages, progress of groups."""
