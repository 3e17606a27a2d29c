"""The bundled strategies of gnnbench: one folder a system, one file a part."""
