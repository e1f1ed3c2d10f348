"""From findings to tables, figures and an article in two languages. Verdicts come from the analysis alone."""
