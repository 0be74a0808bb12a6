// What a viewer likes, kept by his browser: theme and which times come first.
import { useEffect, useState } from "preact/hooks";

export interface Settings {
  theme: "auto" | "light" | "dark";
  utc: boolean;
}

const KEY = "c4.settings";
const listeners = new Set<() => void>();

function read(): Settings {
  const plain: Settings = { theme: "auto", utc: false };
  try {
    const kept = JSON.parse(localStorage.getItem(KEY) ?? "{}") as Partial<Settings>;
    return {
      theme: kept.theme === "light" || kept.theme === "dark" ? kept.theme : plain.theme,
      utc: kept.utc === true,
    };
  } catch {
    return plain;
  }
}

let settings = read();

function apply(): void {
  const dark =
    settings.theme === "dark" ||
    (settings.theme === "auto" && matchMedia("(prefers-color-scheme: dark)").matches);
  document.documentElement.dataset.theme = dark ? "dark" : "light";
}

apply();
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => {
  apply();
  listeners.forEach((tell) => tell());
});

export function setSettings(change: Partial<Settings>): void {
  settings = { ...settings, ...change };
  try {
    localStorage.setItem(KEY, JSON.stringify(settings));
  } catch {
    // A browser that keeps nothing: for this page then.
  }
  apply();
  listeners.forEach((tell) => tell());
}

export function useSettings(): Settings {
  const [, again] = useState(0);
  useEffect(() => {
    const tell = () => again((n) => n + 1);
    listeners.add(tell);
    return () => void listeners.delete(tell);
  }, []);
  return settings;
}

// A colour of style.css as drawings need it.
export const colour = (name: string): string =>
  getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();
export const isDark = () => document.documentElement.dataset.theme === "dark";
