"""What tests of several rooms need: waiting, leak checks, real servers, a fault proxy."""
