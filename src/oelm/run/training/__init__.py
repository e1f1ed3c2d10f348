"""Training needs torch, which dies without a word where a shell leaves it too little address space: seen here first."""

from oelm.machine.exhaustion import refuse_little_address_space

refuse_little_address_space(720 * 2**20, "torch")
