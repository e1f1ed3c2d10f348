"""From findings to tables, figures and a document in two languages. Decides nothing: verdicts come from the analysis."""
