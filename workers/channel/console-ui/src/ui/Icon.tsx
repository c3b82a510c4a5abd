/** Line icons of 24 units; always beside a text or in a control with a name. */

import type { ReactNode } from "react";

const PATHS = {
  alert: "M12 8v5m0 3.500v.010M10.300 3.900 2.400 17.500A2 2 0 0 0 4.100 20.500h15.800a2 2 0 0 0 1.700-3L13.700 3.900a2 2 0 0 0-3.400 0Z",
  archive: "M3 5h18v4H3zM5 9v10h14V9M10 13h4",
  attach: "m20 11.500-8 8a5 5 0 0 1-7-7l8.500-8.500a3.300 3.300 0 0 1 4.700 4.700L9.700 17.200a1.700 1.700 0 0 1-2.400-2.400l7.700-7.700",
  check: "m5 12.500 4.500 4.500L19 7.500",
  chevron: "m9 6 6 6-6 6",
  clock: "M12 7v5l3.500 2M21 12a9 9 0 1 1-18 0 9 9 0 0 1 18 0Z",
  close: "M6 6l12 12M18 6 6 18",
  copy: "M9 9h11v11H9zM5 15H4V4h11v1",
  down: "M12 5v14m-6-6 6 6 6-6",
  download: "M12 4v11m-5-4.500 5 4.500 5-4.500M4 20h16",
  edit: "M4 20h4L19.500 8.500a2.100 2.100 0 0 0-3-3L5 17zM14.500 7.500l3 3",
  eye: "M2.500 12S6 5.500 12 5.500 21.500 12 21.500 12 18 18.500 12 18.500 2.500 12 2.500 12ZM15 12a3 3 0 1 1-6 0 3 3 0 0 1 6 0Z",
  file: "M6 3h8l5 5v13H6zM14 3v5h5",
  image: "M4 5h16v14H4zM4 16l5-5 4 4 2.500-2.500L20 16.500M15.500 9.500v.010",
  keyboard: "M3 6h18v12H3zM7 10v.010M11 10v.010M15 10v.010M17.500 13v.010M7 14h8",
  lock: "M6 11h12v9H6zM8.500 11V8a3.500 3.500 0 0 1 7 0v3",
  menu: "M4 6h16M4 12h16M4 18h16",
  moon: "M20 14.500A8.500 8.500 0 0 1 9.500 4 8.500 8.500 0 1 0 20 14.500Z",
  more: "M4.600 12h.800M11.600 12h.800M18.600 12h.800",
  plus: "M12 5v14M5 12h14",
  retry: "M4 12a8 8 0 0 1 14-5.300L20 9M20 4v5h-5M20 12a8 8 0 0 1-14 5.300L4 15M4 20v-5h5",
  run: "M4 12h4l3-8 3 16 3-8h3",
  search: "m20 20-4.500-4.500M17.500 10.500a7 7 0 1 1-14 0 7 7 0 0 1 14 0Z",
  send: "M12 19V5m-6 6 6-6 6 6",
  settings: "M4 7h10M18 7h2M4 17h2M10 17h10M16 9.500a2.500 2.500 0 1 0 0-5 2.500 2.500 0 0 0 0 5ZM8 19.500a2.500 2.500 0 1 0 0-5 2.500 2.500 0 0 0 0 5Z",
  shield: "M12 3 4.500 6v5.500c0 4.500 3 8 7.500 9.500 4.500-1.500 7.500-5 7.500-9.500V6z",
  stop: "M7 7h10v10H7z",
  sun: "M16 12a4 4 0 1 1-8 0 4 4 0 0 1 8 0ZM12 3v1.500M12 19.500V21M3 12h1.500M19.500 12H21M5.600 5.600l1.100 1.100M17.300 17.300l1.100 1.100M5.600 18.400l1.100-1.100M17.300 6.700l1.100-1.100",
  system: "M3 5h18v11H3zM9 20h6M12 16v4",
  tool: "M14.500 6.500a4.500 4.500 0 0 0-6 5.800L3.500 17.300a2.200 2.200 0 0 0 3.100 3.100l5-5a4.500 4.500 0 0 0 5.800-6l-2.900 2.900-2.600-.400-.400-2.600z",
  trash: "M4 7h16M9 7V4h6v3M6 7l1 13h10l1-13M10 11v5M14 11v5",
} as const;

export type IconName = keyof typeof PATHS;

export function Icon({ name, className }: { name: IconName; className?: string }): ReactNode {
  return (
    <svg
      className={className === undefined ? "icon" : `icon ${className}`}
      viewBox="0 0 24 24"
      width="18"
      height="18"
      aria-hidden="true"
      focusable="false"
      fill="none"
      stroke="currentColor"
      strokeWidth="1.800"
      strokeLinecap="round"
      strokeLinejoin="round"
    >
      <path d={PATHS[name]} />
    </svg>
  );
}
