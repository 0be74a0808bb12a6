import { render } from "preact";
import "uplot/dist/uPlot.min.css";
import "./style.css";
import { App } from "./app";
import { beginLive, takeTokenFromAddress } from "./live";

const root = document.getElementById("page");
if (root) {
  root.textContent = "";
  takeTokenFromAddress();
  beginLive();
  render(<App />, root);
}
