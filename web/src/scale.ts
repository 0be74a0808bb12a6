// Colours that say how much: cividis, which people with any colour vision read alike, and which grows in
// lightness, so that it can be read in grey as well.
const STOPS: [number, number, number][] = [
  [0, 34, 78], [18, 53, 112], [59, 73, 109], [87, 93, 109], [112, 113, 115],
  [138, 134, 120], [165, 156, 116], [195, 179, 105], [225, 204, 85], [254, 232, 56],
];

export function cividis(share: number): [number, number, number] {
  const at = Math.min(Math.max(share, 0), 1) * (STOPS.length - 1);
  const low = Math.min(Math.floor(at), STOPS.length - 2);
  const part = at - low;
  const mix = (n: 0 | 1 | 2) => Math.round(STOPS[low][n] + part * (STOPS[low + 1][n] - STOPS[low][n]));
  return [mix(0), mix(1), mix(2)];
}

export const css = ([r, g, b]: [number, number, number]) => `rgb(${r} ${g} ${b})`;

// A ratio to what is usual: 1 and below is dark, 8 times and more is bright.
export const shareOfRatio = (ratio: number) => Math.log2(Math.max(ratio, 1)) / 3;
