"""Small changes of the library that each break one promise, and the test that must notice each."""
