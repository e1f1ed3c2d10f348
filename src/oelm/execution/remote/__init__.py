"""A server behind SSH: OpenSSH and rsync carry everything, `oelm` itself runs over there. No torch."""
