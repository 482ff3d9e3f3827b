"""The desktop half of Deskside: Qt without widgets here, widgets in `app.ui`."""
