"""What people see whatever the question: tables, pictures, the terminal."""
