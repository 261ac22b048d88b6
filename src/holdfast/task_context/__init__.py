"""What a task works on, as context variables that the tasks it starts inherit."""
