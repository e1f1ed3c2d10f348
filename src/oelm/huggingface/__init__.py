"""Where our GPT and the models of Hugging Face meet."""
