"""Who is asked what, depending on which answers: transcripts, what they cost, and their audit."""
