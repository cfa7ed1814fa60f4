"""What people read: tables in text and HTML, and the style of the figures."""
