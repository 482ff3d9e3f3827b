"""Widgets: the only place that imports QtGui or QtWidgets."""
