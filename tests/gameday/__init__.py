"""Machines on which something goes wrong on purpose, in real time, for people who are to find out what."""
