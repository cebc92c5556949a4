"""Endpoints: functions of the service and a request."""
