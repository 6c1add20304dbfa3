"""What a release says of itself: the privacy statement, in the words of templates."""
