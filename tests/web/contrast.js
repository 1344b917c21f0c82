(() => {
  // Texts whose contrast with what is behind them is below 4.5, as WCAG AA counts it.
  const canvas = document.createElement("canvas").getContext("2d", { willReadFrequently: true });
  function rgba(colour) {
    canvas.clearRect(0, 0, 1, 1);
    canvas.fillStyle = colour;
    canvas.fillRect(0, 0, 1, 1);
    const [r, g, b, a] = canvas.getImageData(0, 0, 1, 1).data;
    return [r, g, b, a / 255];
  }
  const over = (top, below) => top.slice(0, 3).map((value, at) => value * top[3] + below[at] * (1 - top[3]));
  function behind(node) {
    const layers = [];
    for (let one = node; one !== null; one = one.parentElement) layers.push(rgba(getComputedStyle(one).backgroundColor));
    return layers.reverse().reduce((below, top) => over(top, below), [255, 255, 255]);
  }
  function light(colour) {
    const [r, g, b] = colour.map((value) => value / 255).map((value) => (value <= 0.04045 ? value / 12.92 : ((value + 0.055) / 1.055) ** 2.4));
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  }
  function contrast(one, other) {
    const [dark, bright] = [light(one), light(other)].sort((a, b) => a - b);
    return (bright + 0.05) / (dark + 0.05);
  }
  const found = [];
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (walker.nextNode()) {
    const node = walker.currentNode.parentElement;
    if (!walker.currentNode.textContent.trim() || !node.checkVisibility() || node.closest(":disabled, script, style, .sr")) continue;
    const ground = behind(node);
    const ratio = contrast(over(rgba(getComputedStyle(node).color), ground), ground);
    if (ratio < 4.5) found.push(`${walker.currentNode.textContent.trim()}: ${ratio.toFixed(2)}`);
  }
  return JSON.stringify(found);
})()
