"""The HTTP/1.1 client: for upstreams, webhooks and the command line.

It does what a client of token streams needs. A response is returned as soon as its head has arrived. Its body is handed
over as it arrives, and all that arrived before a connection broke is handed over before the error. Closing a response
that was not read to its end aborts its socket and awaits nothing. A connection is used again only after a complete
response. Redirects are not followed.
"""
