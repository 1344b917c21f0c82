"""A dashboard as Grafana's own JSON (schema 41, Grafana 12), from its values. Pure.

Only what differs from Grafana's defaults is written, and what it would otherwise ask about.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import count
from string import ascii_uppercase
from typing import Any, Final

from grafana_model import (
    COLUMNS,
    PLAIN,
    Bars,
    Board,
    Column,
    Key,
    Lines,
    Panel,
    Query,
    Row,
    Stat,
    Steps,
    Table,
    Variable,
)

Json = dict[str, Any]

SCHEMA: Final = 41
SOURCE: Final = {"type": "prometheus", "uid": "${datasource}"}
TAG: Final = "gpu-manager"
LAST: Final = {"calcs": ["lastNotNull"], "fields": "", "values": False}
NARROWEST: Final = 80
"""Pixels of a table's column; Grafana's own 150 make tables of half a screen scroll sideways."""
KEEP: Final = "${datasource:queryparam}&${__url_time_range}"
"""What a link takes along: the data source and the time that is looked at."""


def as_json(board: Board) -> Json:
    return {
        "annotations": {"list": [_alerts()]},
        "description": board.help,
        "editable": True,
        "graphTooltip": 1,
        "links": [_siblings()],
        "panels": list(_panels(board.rows)),
        "refresh": "30s",
        "schemaVersion": SCHEMA,
        "tags": [TAG],
        "templating": {"list": [_datasource(), *map(_variable, board.variables)]},
        "time": {"from": f"now-{board.hours}h", "to": "now"},
        "timezone": "browser",
        "title": board.title,
        "uid": board.uid,
        "version": 1,
    }


def _alerts() -> Json:
    """Alerts of ours that fired are marked in every graph."""
    return {
        "datasource": SOURCE,
        "enable": True,
        "expr": 'ALERTS{alertname=~"GpuManager.*",alertstate="firing",severity!="info"}',
        "iconColor": "orange",
        "name": "Alerts",
        "titleFormat": "{{alertname}}",
        "textFormat": "{{node}} {{namespace}} {{pod}}",
    }


def _siblings() -> Json:
    return {
        "asDropdown": False,
        "icon": "dashboard",
        "includeVars": True,
        "keepTime": True,
        "tags": [TAG],
        "title": "GPU manager",
        "type": "dashboards",
    }


def _datasource() -> Json:
    return {"name": "datasource", "label": "Data source", "type": "datasource",
            "query": "prometheus", "current": {}, "refresh": 1}  # fmt: skip


def _variable(variable: Variable) -> Json:
    everything = {"text": ["All"], "value": ["$__all"]} if variable.several else {}
    return {
        "current": everything,
        "datasource": SOURCE,
        "definition": variable.query,
        "includeAll": variable.several,
        "label": variable.title,
        "multi": variable.several,
        "name": variable.name,
        "query": {"query": variable.query, "refId": variable.name},
        "refresh": 2,
        "sort": 1,
        "type": "query",
    }


def _panels(rows: Iterable[Row]) -> Iterator[Json]:
    """Each row below the one before it; the panels of a folded one are inside of it."""
    numbers, top = count(1), 0
    for row in rows:
        head = {
            "collapsed": row.collapsed,
            "gridPos": _grid(0, top, COLUMNS, 1),
            "id": next(numbers),
            "panels": list[Json](),
            "title": row.title,
            "type": "row",
        }
        top += 1
        placed = [_panel(one, next(numbers), at) for one, at in _places(row.panels, top)]
        if row.collapsed:
            yield {**head, "panels": placed}
        else:
            yield from (head, *placed)
            top = max(one["gridPos"]["y"] + one["gridPos"]["h"] for one in placed)


def _places(panels: Iterable[Panel], top: int) -> Iterator[tuple[Panel, Json]]:
    left = deepest = 0
    for panel in panels:
        if left + panel.width > COLUMNS:
            left, top, deepest = 0, top + deepest, 0
        yield panel, _grid(left, top, panel.width, panel.height)
        left, deepest = left + panel.width, max(deepest, panel.height)


def _grid(x: int, y: int, w: int, h: int) -> Json:
    return {"h": h, "w": w, "x": x, "y": y}


def _panel(panel: Panel, number: int, place: Json) -> Json:
    return {
        "datasource": SOURCE,
        "description": panel.help,
        "gridPos": place,
        "id": number,
        "title": panel.title,
        **KINDS[type(panel)](panel),
    }


def _stat(panel: Stat) -> Json:
    mapped = {str(value): {"text": text, "color": color} for value, text, color in panel.texts}
    mappings = [{"type": "value", "options": mapped}] if mapped else []
    return {
        "type": "stat",
        "targets": [_range("A", panel.query)],
        "fieldConfig": _fields({**_scale(panel, panel.steps), "mappings": mappings}),
        "options": {"colorMode": "value", "graphMode": "none" if mapped else "area",
                    "reduceOptions": LAST, "textMode": "value"},
    }  # fmt: skip


def _bars(panel: Bars) -> Json:
    return {
        "type": "bargauge",
        "targets": [_instant("A", panel.query.expr, panel.query.legend, "time_series")],
        "fieldConfig": _fields(_scale(panel, panel.steps)),
        "options": {"displayMode": "basic", "orientation": "horizontal", "reduceOptions": LAST,
                    "valueMode": "text"},
    }  # fmt: skip


def _lines(panel: Lines) -> Json:
    custom = {
        "drawStyle": "line",
        "fillOpacity": 35 if panel.stacked else 8,
        "lineWidth": 1,
        "showPoints": "never",
        "stacking": {"group": "A", "mode": "normal" if panel.stacked else "none"},
    }
    legend = {"displayMode": panel.legend, "placement": "bottom", "showLegend": True,
              "calcs": ["lastNotNull", "max"] if panel.legend == "table" else []}  # fmt: skip
    scale = {**_scale(panel, ()), "color": {"mode": "palette-classic"}, "custom": custom}
    targets = [_range(name, one) for name, one in zip(ascii_uppercase, panel.queries, strict=False)]
    overrides = [
        _override("byFrameRefID", target["refId"], _drawn(query))
        for target, query in zip(targets, panel.queries, strict=True)
        if query.color or query.dashed
    ]
    return {
        "type": "timeseries",
        "targets": targets,
        "fieldConfig": _fields(scale, overrides),
        "options": {"legend": legend, "tooltip": {"mode": "multi", "sort": "desc"}},
    }


def _drawn(query: Query) -> Mapping[str, Any]:
    color = {"color": {"mode": "fixed", "fixedColor": query.color}} if query.color else {}
    if not query.dashed:
        return color
    return {
        **color,
        "custom.lineStyle": {"fill": "dash", "dash": [8, 6]},
        "custom.fillOpacity": 0,
        "custom.stacking": {"group": "limits", "mode": "none"},
    }


def _table(panel: Table) -> Json:
    named = list(zip(ascii_uppercase, panel.columns, strict=False))
    titles = {key.label: key.title for key in panel.keys}
    titles |= {f"Value #{name}": column.title for name, column in named}
    order = {name: place for place, name in enumerate(titles)}
    keys = [_key(key) for key in panel.keys if key.link or key.width]
    overrides = [*keys, *(_cell(column) for _, column in named)]
    fields = _fields(_scale(panel, PLAIN), overrides)
    fields["defaults"]["custom"] = {"minWidth": NARROWEST}
    return {
        "type": "table",
        "targets": [_instant(name, column.expr, "", "table") for name, column in named],
        "transformations": [
            {"id": "merge", "options": {}},
            {"id": "organize", "options": {"excludeByName": {"Time": True},
                                           "indexByName": order, "renameByName": titles}},
        ],
        "fieldConfig": fields,
        "options": {"cellHeight": "sm", "showHeader": True,
                    "sortBy": [{"displayName": panel.by, "desc": True}] if panel.by else []},
    }  # fmt: skip


def _key(key: Key) -> Json:
    if not key.link:
        return _override("byName", key.title, {"custom.width": key.width})
    url = f"/d/{key.link}?{KEEP}&var-{key.label}=${{__value.raw}}"
    if key.label == "pod":
        url += "&var-namespace=${__data.fields.Namespace}"
    return _override("byName", key.title, {"links": [{"title": f"This {key.label}", "url": url}]})


def _cell(column: Column) -> Json:
    shown: Json = {"unit": column.unit, "thresholds": _thresholds(column.steps)}
    if column.decimals is not None:
        shown["decimals"] = column.decimals
    if column.bar:
        shown |= {"min": 0, "max": column.most, "color": {"mode": "thresholds"}}
        shown["custom.cellOptions"] = {"type": "gauge", "mode": "basic"}
    elif column.steps != PLAIN:
        shown |= {"custom.cellOptions": {"type": "color-text"}, "color": {"mode": "thresholds"}}
    return _override("byName", column.title, shown)


def _scale(panel: Panel, steps: Steps) -> Json:
    scale: Json = {"unit": panel.unit, "min": 0}
    if steps:
        scale |= {"thresholds": _thresholds(steps), "color": {"mode": "thresholds"}}
    if panel.most is not None:
        scale["max"] = panel.most
    if panel.decimals is not None:
        scale["decimals"] = panel.decimals
    return scale


def _thresholds(steps: Steps) -> Json:
    return {"mode": "absolute", "steps": [{"color": one, "value": value} for one, value in steps]}


def _fields(defaults: Json, overrides: Iterable[Json] = ()) -> Json:
    return {"defaults": defaults, "overrides": list(overrides)}


def _override(matcher: str, name: str, properties: Mapping[str, Any]) -> Json:
    listed = [{"id": key, "value": value} for key, value in properties.items()]
    return {"matcher": {"id": matcher, "options": name}, "properties": listed}


def _range(name: str, query: Query) -> Json:
    return {"refId": name, "datasource": SOURCE, "expr": query.expr, "range": True,
            "legendFormat": query.legend or "__auto"}  # fmt: skip


def _instant(name: str, expr: str, legend: str, form: str) -> Json:
    return {"refId": name, "datasource": SOURCE, "expr": expr, "instant": True, "range": False,
            "format": form, "legendFormat": legend or "__auto"}  # fmt: skip


KINDS: Final[Mapping[type[Panel], Callable[[Any], Json]]] = {
    Stat: _stat,
    Bars: _bars,
    Lines: _lines,
    Table: _table,
}
