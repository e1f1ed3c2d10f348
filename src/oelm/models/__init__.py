"""Where oelm and the transformers library meet: arms applied to its models, our GPT as one of them."""
