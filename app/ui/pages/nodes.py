"""Other computers that lend their memory: a list with their state, adding and removing one."""

from PySide6.QtCore import QCoreApplication, Qt
from PySide6.QtWidgets import QFrame, QHBoxLayout, QLineEdit, QVBoxLayout

from app.context import AppContext
from app.models_link import ModelsLink
from app.ui.appearance import Appearance
from app.ui.controls.buttons import IconButton, push_button
from app.ui.controls.labels import ElidedLabel, label
from app.ui.controls.states import Message
from app.ui.pages.base import Card, clear_layout
from app.ui.theme import Size, Space
from runtime.errors import Failure
from runtime.messages.fit import NodeInfo
from runtime.units import format_bytes, format_duration


def tr(text: str) -> str:
    """Translate in this card's context."""
    return QCoreApplication.translate("NodesCard", text)


def node_line(node: NodeInfo) -> str:
    """Memory and distance of a node, or why it cannot be used."""
    if node.state != "reachable":
        return node.problem
    return tr("{free} of {total} free, answers in {time}").format(
        free=format_bytes(node.free_bytes), total=format_bytes(node.total_bytes), time=format_duration(node.latency_s)
    )


class NodesCard(Card):
    """Nodes are checked by the host; the list follows its events."""

    def __init__(self, context: AppContext, appearance: Appearance) -> None:
        super().__init__(tr("Memory of other computers"))
        self._models = ModelsLink(context.link, self)
        self._link = context.link
        self._appearance = appearance
        self._shown: tuple[NodeInfo, ...] | None = None
        self.column.addWidget(
            label(
                tr(
                    "Start “deskside node” on a computer in your network and add its address here: models that do not "
                    "fit on this one can use its memory. What is asked and answered crosses the network unencrypted, "
                    "so only add computers in a network you trust."
                ),
                "small",
                wrap=True,
            )
        )
        self._list = QVBoxLayout()
        self._list.setSpacing(0)
        self.column.addLayout(self._list)
        row = QHBoxLayout()
        row.setSpacing(Space.XS)
        self._button = push_button(tr("Add"), self.add)
        self._button.setEnabled(False)
        self.field = QLineEdit()
        self.field.setPlaceholderText(tr("Address and port, such as 192.168.1.30:50052"))
        self.field.setAccessibleName(tr("Address of another computer"))
        self.field.returnPressed.connect(self.add)
        self.field.textChanged.connect(lambda text: self._button.setEnabled(bool(text.strip())))
        row.addWidget(self.field, 1)
        row.addWidget(self._button)
        self.column.addLayout(row)
        self.message = Message()
        self.column.addWidget(self.message)
        self._link.nodes_changed.connect(self._show)
        self._link.connected.connect(self._show)
        self._show()

    def add(self) -> None:
        """Use the computer whose address was typed."""
        address = self.field.text().strip()
        if address:
            self.message.hide()
            self._button.setEnabled(False)
            self._models.add_node(address, lambda _nodes: self.field.clear(), failed=self._failed)

    def _failed(self, failure: Failure) -> None:
        self._button.setEnabled(True)
        self.message.say_failure(failure)

    def _remove(self, address: str) -> None:
        self._models.remove_node(address, failed=self._failed)

    def _show(self) -> None:
        nodes = self._link.nodes
        if nodes == self._shown:
            return
        self._shown = nodes
        clear_layout(self._list)
        for node in nodes:
            self._list.addWidget(self._row(node))

    def _row(self, node: NodeInfo) -> QFrame:
        frame = QFrame()
        frame.setProperty("role", "row")
        frame.setAccessibleName(node.address)
        row = QHBoxLayout(frame)
        row.setContentsMargins(0, Space.XS, 0, Space.XS)
        row.setSpacing(Space.S)
        name = ElidedLabel(node.address, "strong")
        name.setMinimumWidth(Size.LABEL_W)
        row.addWidget(name)
        words = {
            "reachable": tr("Reachable"),
            "unreachable": tr("Not reachable"),
            "too_old": tr("Another version"),
        }
        tag = label(words[node.state], "tag-accent" if node.state == "reachable" else "tag-amber")
        row.addWidget(tag, 0, Qt.AlignmentFlag.AlignVCenter)
        row.addWidget(ElidedLabel(node_line(node), "small"), 1)
        remove = IconButton(self._appearance, "close", tr("Remove {address}").format(address=node.address))
        remove.clicked.connect(lambda _checked=False: self._remove(node.address))
        row.addWidget(remove)
        return frame
