import { render } from "preact";
import "uplot/dist/uPlot.min.css";
import "./style.css";
import { App } from "./app";
import { beginLive } from "./live";

const root = document.getElementById("page");
if (root) {
  root.textContent = "";
  beginLive();
  render(<App />, root);
}
