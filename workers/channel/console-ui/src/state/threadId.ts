import { createContext } from "react";

/** The thread that is drawn. */
export const ThreadId = createContext("");
