"""What each attention head looks at: scores of its weights on repeated random tokens or on text."""
