"""From findings to tables, figures and a document in two languages. Verdicts come from the analysis alone."""
