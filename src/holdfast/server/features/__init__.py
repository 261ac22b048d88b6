"""What a server does. Each feature has its calls, its chores, its start and its end."""
