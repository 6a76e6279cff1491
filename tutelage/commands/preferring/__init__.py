"""Where the preferences of `tutelage dpo` come from: a file, or the policy's own answers."""
