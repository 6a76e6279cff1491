// Two responses: a bar from A to B, and a row for each criterion.

import { bar } from "../bar.js";
import { begin } from "../rate.js";

begin({ ...bar });
