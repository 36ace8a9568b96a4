"""The examples do what they say."""
