"""Switches speculation off where it does not pay or is not safe, and on again; by numbers, with an audit trail."""
