// Draws a dashboard's panels with Grafana's own components: window.draw({board, answers, from, to, chosen}).
// answers: by panel id and refId, series as {labels, name, points: [[seconds, value]]}.
// Required, not imported: the ES modules take the default of some CommonJS packages wrongly when bundled.
const React = require("react");
const { createRoot } = require("react-dom/client");
const { flushSync } = require("react-dom");
const {
  applyFieldOverrides, createDataFrame, createTheme, dateTime, FieldConfigOptionsRegistry, FieldType,
  getFieldDisplayValues, identityOverrideProcessor,
  standardTransformers, standardTransformersRegistry, transformDataFrame,
} = require("@grafana/data");
const { BarGauge, BigValue, GlobalStyles, PanelChrome, Table, ThemeContext, TimeSeries } = require("@grafana/ui");

const THEME = createTheme({ colors: { mode: "dark" } });
const NAMES = ["unit", "decimals", "min", "max", "color", "thresholds", "mappings", "links", "noValue", "displayName", "filterable"];
const REGISTRY = (names) => new FieldConfigOptionsRegistry(() => [...NAMES, ...names].map((id) => ({
  id, name: id, path: id.replace("custom.", ""), isCustom: id.startsWith("custom."),
  process: identityOverrideProcessor, shouldApply: () => true, override: () => null, editor: () => null, settings: {},
})));
const asIs = (text) => text;

standardTransformersRegistry.setInit(() => [standardTransformers.mergeTransformer, standardTransformers.organizeFieldsTransformer]
  .map((one) => ({ id: one.id, name: one.name, transformation: async () => one })));

function frames(panel, answers) {
  return panel.targets.flatMap(({ refId, format }) => {
    const series = answers[refId] ?? [];
    if (format !== "table") {
      return series.map((one) => createDataFrame({ refId, name: one.name, fields: [
        { name: "Time", type: FieldType.time, values: one.points.map(([at]) => at * 1000) },
        { name: "Value", type: FieldType.number, values: one.points.map(([, value]) => value), labels: one.labels,
          config: { displayNameFromDS: one.name } }] }));
    }
    const labels = [...new Set(series.flatMap((one) => Object.keys(one.labels)))];
    const last = (one) => one.points[one.points.length - 1];
    return [createDataFrame({ refId, fields: [
      { name: "Time", type: FieldType.time, values: series.map((one) => last(one)[0] * 1000) },
      ...labels.map((name) => ({ name, type: FieldType.string, values: series.map((one) => one.labels[name] ?? "") })),
      { name: `Value #${refId}`, type: FieldType.number, values: series.map((one) => last(one)[1]) }] })];
  });
}

function ready(panel, found) {
  const used = new Set(Object.keys(panel.fieldConfig.defaults.custom ?? {}).map((name) => `custom.${name}`));
  panel.fieldConfig.overrides.forEach((one) => one.properties.forEach(({ id }) => id.startsWith("custom.") && used.add(id)));
  return applyFieldOverrides({ data: found, fieldConfig: panel.fieldConfig, fieldConfigRegistry: REGISTRY([...used]), replaceVariables: asIs, theme: THEME, timeZone: "utc" });
}

function values(panel, found) {
  return getFieldDisplayValues({ fieldConfig: panel.fieldConfig, reduceOptions: panel.options.reduceOptions, replaceVariables: asIs, theme: THEME, data: found, sparkline: true, timeZone: "utc" });
}

function Inside({ panel, found, width, height, range }) {
  const { options, type } = panel;
  if (type === "stat") {
    const [one] = values(panel, found);
    return <BigValue theme={THEME} width={width} height={height} value={one.display} colorMode={options.colorMode} graphMode={options.graphMode}
      textMode={options.textMode} justifyMode="auto" sparkline={options.graphMode === "area" ? one.sparkline : undefined} />;
  }
  if (type === "bargauge") {
    const all = values(panel, found);
    const each = height / all.length;
    return all.map((one, at) => <div key={at} style={{ position: "absolute", top: at * each, left: 0 }}>
      <BarGauge theme={THEME} width={width} height={each - 10} value={one.display} field={one.field} display={one.view?.getFieldDisplayProcessor(one.colIndex)}
        orientation={options.orientation} displayMode={options.displayMode} valueDisplayMode="color" showUnfilled text={{ titleSize: 13 }} /></div>);
  }
  if (type === "table") {
    return <Table data={found[0]} width={width} height={height} timeRange={range} initialSortBy={options.sortBy} cellHeight={options.cellHeight} columnMinWidth={panel.fieldConfig.defaults.custom.minWidth} />;
  }
  return <TimeSeries frames={found} width={width} height={height} timeRange={range} timeZone="utc" legend={options.legend} options={options} theme={THEME} />;
}

function Panel({ panel, found, range }) {
  const { w, h } = panel.gridPos;
  const [width, height] = [w * 60 - 8, h * 38 - 8];
  if (panel.type === "row") return <div style={{ padding: "6px 8px", fontWeight: 500, fontSize: 16 }}>{panel.collapsed ? "▸" : "▾"} {panel.title}{panel.collapsed ? <small style={{ opacity: 0.6 }}> ({panel.panels.length} panels)</small> : null}</div>;
  const empty = found.every((one) => one.length === 0);
  return <PanelChrome title={panel.title} width={width} height={height} hoverHeader={false}>
    {(w_, h_) => empty ? <div style={{ display: "grid", placeItems: "center", height: h_, opacity: 0.6 }}>No data</div>
      : <div style={{ position: "relative", width: w_, height: h_ }}><Inside panel={panel} found={found} width={w_} height={h_} range={range} /></div>}
  </PanelChrome>;
}

window.draw = async ({ board, answers, from, to, chosen }) => {
  const range = { from: dateTime(from * 1000), to: dateTime(to * 1000), raw: { from: "now-3h", to: "now" } };
  const shown = [];
  for (const panel of board.panels) {
    let found = panel.targets ? frames(panel, answers[panel.id] ?? {}) : [];
    if (panel.transformations) found = await new Promise((done) => transformDataFrame(panel.transformations, found, { interpolate: asIs }).subscribe(done));
    shown.push({ panel, found: panel.targets ? ready(panel, found) : [] });
  }
  const deepest = Math.max(...board.panels.map(({ gridPos: at }) => at.y + at.h));
  const head = Object.entries(chosen).map(([name, value]) => <span key={name} style={{ marginRight: 16, opacity: 0.8 }}>{name}: {value}</span>);
  const page = <ThemeContext.Provider value={THEME}><GlobalStyles />
    <div style={{ width: 1456, padding: 8, background: THEME.colors.background.canvas }}>
      <h1 style={{ fontSize: 20, padding: "4px 8px" }}>{board.title}</h1><div style={{ padding: "0 8px 8px" }}>{head}</div>
      <div style={{ position: "relative", height: deepest * 38 }}>
        {shown.map(({ panel, found }) => <div key={panel.id} style={{ position: "absolute", left: panel.gridPos.x * 60, top: panel.gridPos.y * 38 }}>
          <Panel panel={panel} found={found} range={range} /></div>)}
      </div></div></ThemeContext.Provider>;
  flushSync(() => createRoot(document.getElementById("board")).render(page));
};
