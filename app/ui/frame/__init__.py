"""The frame of the window: rail, status bar, menus, command palette, toasts and banner."""
