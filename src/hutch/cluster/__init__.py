"""Many machines behind one address: who is there, who takes what, and who may. On Redis; no HTTP."""
