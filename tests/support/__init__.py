"""What the tests share: real captures, and strategies that make messages."""
