"""From findings to tables, figures, an article, a live page, frames. Verdicts come from the analysis alone."""
