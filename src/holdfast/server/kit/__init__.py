"""What all features are made with: endpoints, routing, requests and responses. It knows no feature."""
