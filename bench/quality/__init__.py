"""What the trainers do to a real model, beside what others published: the figures of docs/results.md."""
