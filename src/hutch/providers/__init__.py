"""What makes machines: one contract (`base`), and one package per provider. None knows another."""
