"""Sequences of numbers: tables to series, their time, scales and windows."""
