"""Tutelage beside its peers: the same jobs, models, data, seeds and precision, each side in a process of its own.

    python -m bench                   every job
    python -m bench sft grpo          some of them
    python -m bench growth-model      how a step grows over one axis; growth stands for all of them
    python -m bench --data FILE       on the texts of a preference file instead of generated ones
    python -m bench.people_growth     how what people wait for grows with a study
    python -m bench.episodes_growth   how a rollout of episodes grows with their turns

`jobs/` has a file for each job that says what both sides do. The peers live in environments of their own.
"""
