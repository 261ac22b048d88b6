"""HTTP below the routes: connections, limits, sockets, threads, compression."""
