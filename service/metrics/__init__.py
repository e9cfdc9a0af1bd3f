"""What Prometheus is told: one module for each part of the service."""
